import com.segment.analytics.Analytics;
import com.segment.analytics.Callback;
import com.segment.analytics.messages.Message;
import com.segment.analytics.messages.TrackMessage;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Segment's SDK for Java as a client of `clients.ts`. */
public class Client {
  public static void main(String[] args) throws Exception {
    int count = Integer.parseInt(System.getenv("SLUICE_COUNT"));
    Set<Integer> sent = new ConcurrentSkipListSet<>();
    CountDownLatch settled = new CountDownLatch(count);
    Analytics analytics = Analytics.builder(System.getenv("SLUICE_KEY"))
        .endpoint(System.getenv("SLUICE_URL") + "/ingest")
        .flushQueueSize(20)
        .flushInterval(1, TimeUnit.SECONDS)
        .retries(20)
        .callback(new Callback() {
          @Override
          public void success(Message message) {
            sent.add((Integer) ((TrackMessage) message).properties().get("n"));
            settled.countDown();
          }

          @Override
          public void failure(Message message, Throwable problem) {
            settled.countDown();
          }
        })
        .build();

    System.out.println("ready");
    System.in.read();
    for (int n = 0; n < count; n++) {
      analytics.enqueue(TrackMessage.builder(System.getenv("SLUICE_EVENT"))
          .userId("user-" + n % 50)
          .properties(Map.of("n", n)));
      Thread.sleep(2);
    }
    analytics.flush();
    settled.await();
    analytics.shutdown();
    System.out.println(sent);
    System.exit(0);
  }
}
