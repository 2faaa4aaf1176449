/**
 * What to do when something is not well, in short words. Pure. The reasons are texts of the server; those that are not
 * known here are still shown on the page, and get the advice to run the doctor, which is below all of it.
 */

import type { Health } from '../api-types.ts';

export interface Advice {
  readonly tone: 'warn' | 'bad';
  readonly title: string;
  readonly text: string;
}

const BACKLOG_SHARE_WARN = 0.5;
const DISK_FACTOR_WARN = 2;
const LAG_SECONDS_WARN = 60;
const CLOCK_BEHIND_SECONDS_WARN = 10;

/** Worst first. */
export function adviceFor(health: Health): Advice[] {
  const { reasons } = health;
  const says = (words: string): boolean => reasons.some((reason) => reason.includes(words));
  const advice: (Advice | false)[] = [
    says('Kafka') && {
      tone: 'bad',
      title: 'Kafka does not accept events',
      text: 'Check its brokers: too few in-sync replicas, no leader, no network? Processing resumes when they are healthy.',
    },
    says('the store cannot be reached') && {
      tone: 'bad',
      title: 'PostgreSQL does not respond',
      text: 'Check the database and the network. Events are still accepted, and are processed when it responds again.',
    },
    says('the log cannot be written') &&
      !says('Kafka') && {
        tone: 'bad',
        title: 'The disk cannot be written',
        text: 'Check the kernel’s log and the disk. When the disk works again, restart the server.',
      },
    diskAdvice(health, says('disk space')),
    backlogAdvice(health, says('SLUICE_BACKLOG_MAX')),
    health.clock_held_seconds > 0 && {
      tone: 'bad',
      title: 'The clock jumped ahead and is not trusted',
      text: 'Events get the time before the jump, plus the time that has passed since. Correct the clock of the machine. If it is right, restart the server, with a larger SLUICE_CLOCK_GAP_MAX if the difference is larger than that.',
    },
    health.clock_behind_seconds > CLOCK_BEHIND_SECONDS_WARN && {
      tone: 'warn',
      title: 'The clock is behind the newest event',
      text: 'The time of receipt never goes back: it runs at half speed until the clock has caught up. If the clock of the machine is wrong, correct it.',
    },
    health.ledger_difference !== null &&
      health.ledger_difference !== 0 && {
        tone: 'bad',
        title: 'Not every event is accounted for',
        text: 'This is a bug in Sluice. sluice doctor shows the hours; please report it with its output.',
      },
    health.processing_problem !== null && {
      tone: 'bad',
      title: 'Processing waits',
      text: `${health.processing_problem.replace(/\.$/, '')}. New requests are accepted and kept in the log.`,
    },
    (health.log_missing_records ?? 0) > 0 && {
      tone: 'bad',
      title: 'The event log has lost records',
      text: 'The log ends before what the store has processed, or before what was acknowledged. The doctor says which positions are gone and what to do.',
    },
    (health.log_lost_records ?? 0) > 0 && {
      tone: 'warn',
      title: 'Some records will never be in the store',
      text: 'They were given up by an operator, or removed from the log before this store was created. The doctor says which ones, and when.',
    },
    health.warnings.length > 0 && {
      tone: 'warn',
      title: 'The server warned when it started',
      text: `${health.warnings.join('. ')}.`,
    },
    health.dead_letters > 0 && {
      tone: 'bad',
      title: 'Some records could not be processed',
      text: 'They are kept, and nothing else waits for them. The doctor shows which ones, and why. The Rejected view has those of this account, to retry after an upgrade.',
    },
    (health.lag_seconds ?? 0) > LAG_SECONDS_WARN && {
      tone: 'warn',
      title: 'Processing is behind',
      text: 'More is received than is processed: check the CPU and the disk. Nothing is lost.',
    },
    says('shutting down') && {
      tone: 'warn',
      title: 'The server is shutting down',
      text: 'It finishes the requests in flight, then exits. If this was not intended, find out what stopped it.',
    },
    health.status === 'not ready' &&
      reasons.length === 0 && {
        tone: 'bad',
        title: 'It does not say why',
        text: 'Its log may: look at the last lines.',
      },
  ];
  return advice.filter((each) => each !== false);
}

function diskAdvice(health: Health, isLow: boolean): Advice | false {
  const { disk_free_bytes: free, disk_free_bytes_min: least } = health;
  if (!isLow && (free === null || least === 0 || free > DISK_FACTOR_WARN * least)) return false;
  return {
    tone: isLow ? 'bad' : 'warn',
    title: isLow ? 'The disk is almost full' : 'The disk is filling up',
    text: 'Free space on the disk of SLUICE_DATA, or keep less: SLUICE_LOG_RETENTION and SLUICE_EVENT_RETENTION set how long data is kept. Ingestion resumes within seconds.',
  };
}

function backlogAdvice(health: Health, isFull: boolean): Advice | false {
  const { backlog_bytes, backlog_bytes_max: most } = health;
  const backlog = backlog_bytes ?? 0;
  if (!isFull && backlog <= BACKLOG_SHARE_WARN * most) return false;
  return {
    tone: isFull ? 'bad' : 'warn',
    title: isFull ? 'Too much waits to be processed' : 'The backlog is growing large',
    text: 'More is received than is processed: check the CPU and the disk of SLUICE_DATA, and look for “the processor waits” in the log. Everything accepted is safe.',
  };
}
