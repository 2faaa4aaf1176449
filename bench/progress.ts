/**
 * The progress bar: one line that is drawn again and again on a terminal, a line every few seconds elsewhere. Steps
 * say beforehand about how long they take; the bar shows the share of that time which has passed, and never runs ahead
 * of the steps that are done.
 */

import type { WriteStream } from 'node:tty';

const WIDTH = 28;
const REDRAW_MILLISECONDS = 200;
const LINE_MILLISECONDS = 5000;

export class Progress {
  private readonly out: WriteStream;
  private readonly totalSeconds: number;
  private readonly timer: NodeJS.Timeout;
  /** Goes before each label. */
  prefix = '';
  private doneSeconds = 0;
  private step = { label: 'starting', seconds: 0, from: performance.now() };
  private readonly from = performance.now();

  constructor(out: WriteStream, totalSeconds: number) {
    this.out = out;
    this.totalSeconds = totalSeconds;
    this.timer = setInterval(() => this.draw(), out.isTTY ? REDRAW_MILLISECONDS : LINE_MILLISECONDS);
    this.timer.unref();
  }

  /** Ends the step before it. */
  begin(label: string, seconds: number): void {
    this.doneSeconds += this.step.seconds;
    this.step = { label: `${this.prefix}${label}`, seconds, from: performance.now() };
    if (this.out.isTTY) this.draw();
  }

  /** A line that stays. */
  print(line: string): void {
    if (this.out.isTTY) this.out.write('\r\u001b[2K');
    this.out.write(`${line}\n`);
  }

  close(): void {
    clearInterval(this.timer);
    if (this.out.isTTY) this.out.write('\r\u001b[2K');
  }

  private draw(): void {
    const inStep = Math.min(this.step.seconds, (performance.now() - this.step.from) / 1000);
    const share = Math.min(1, (this.doneSeconds + inStep) / this.totalSeconds);
    const passed = Math.round((performance.now() - this.from) / 1000);
    const percent = String(Math.floor(share * 100)).padStart(3);
    if (!this.out.isTTY) {
      this.out.write(`${percent} %  ${passed} s  ${this.step.label}\n`);
      return;
    }
    const filled = Math.round(share * WIDTH);
    const bar = '█'.repeat(filled) + '░'.repeat(WIDTH - filled);
    const line = `${bar} ${percent} %  ${passed} of about ${Math.round(this.totalSeconds)} s  ${this.step.label}`;
    this.out.write(`\r\u001b[2K${line.slice(0, (this.out.columns || 100) - 1)}`);
  }
}
