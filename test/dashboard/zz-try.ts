import { startMemberServer, deliver, settled } from './member-page.ts';
const r = await startMemberServer();
try {
  await deliver(r.server, r.server.key, [
    {
      identifiers: { user_id: 'long' + 'W'.repeat(480), first_name: 'long' + 'W'.repeat(480) },
      events: [{ event_name: 'long' + 'W'.repeat(480) }],
    },
  ]);
  const w = await r.open();
  await w.page.goto('/dashboard/development/people');
  await settled(w.page);
  await w.page
    .getByText(/longWWW/)
    .first()
    .waitFor();
  console.log(
    await w.page.evaluate(
      `[...document.querySelectorAll('main *, main')].filter(e=>e.getBoundingClientRect().right>innerWidth).map(e=>e.tagName+'.'+e.className+' '+Math.round(e.getBoundingClientRect().right)+' '+getComputedStyle(e).overflowX).slice(0,12).join('\\n')`,
    ),
  );
} finally {
  await r.close();
}
