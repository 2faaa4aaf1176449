// Segment's SDK for Go as a client of `clients.ts`.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"gopkg.in/segmentio/analytics-go.v3"
)

type deliveries struct {
	settled sync.WaitGroup
	mutex   sync.Mutex
	sent    []int
}

func (d *deliveries) Success(message analytics.Message) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.sent = append(d.sent, message.(analytics.Track).Properties["n"].(int))
	d.settled.Done()
}

func (d *deliveries) Failure(analytics.Message, error) {
	d.settled.Done()
}

type silence struct{}

func (silence) Logf(string, ...interface{})   {}
func (silence) Errorf(string, ...interface{}) {}

func main() {
	count, _ := strconv.Atoi(os.Getenv("SLUICE_COUNT"))
	delivered := &deliveries{sent: []int{}}
	client, err := analytics.NewWithConfig(os.Getenv("SLUICE_KEY"), analytics.Config{
		Endpoint:   os.Getenv("SLUICE_URL") + "/ingest",
		BatchSize:  20,
		Interval:   100 * time.Millisecond,
		Callback:   delivered,
		Logger:     silence{},
		RetryAfter: func(int) time.Duration { return 500 * time.Millisecond },
	})
	if err != nil {
		panic(err)
	}

	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
	delivered.settled.Add(count)
	for n := 0; n < count; n++ {
		client.Enqueue(analytics.Track{
			UserId:     fmt.Sprintf("user-%d", n%50),
			Event:      os.Getenv("SLUICE_EVENT"),
			Properties: analytics.Properties{"n": n},
		})
		time.Sleep(2 * time.Millisecond)
	}
	// What waits for a retry is dropped by Close.
	delivered.settled.Wait()
	client.Close()
	json.NewEncoder(os.Stdout).Encode(delivered.sent)
}
