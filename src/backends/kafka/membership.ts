/**
 * Membership in a consumer group, by Kafka 4's own protocol: heartbeats tell the coordinator that this member is alive and
 * which partitions it has, and the answers which it is to have. Partitions move one by one; nobody else stops meanwhile.
 *
 * A partition that is taken away is let go of at once, before the coordinator is told so; then it may go to another. After
 * heartbeats have failed for a while nothing is ours any more: by then others have it. Correctness does not depend on any
 * of this: the store takes the records of a partition only in order.
 */

import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { consumerGroupHeartbeatV1 } from '@platformatic/kafka';
import { OperatorError } from '../../errors.ts';
import { LogUnavailableError } from '../../log.ts';
import type { Cluster } from './cluster.ts';
import { answered, CODE, reasonOf, wordsOf } from './codes.ts';
import type { GroupMembership } from './group-positions.ts';

/** How long a member may take to let go of a partition: it does so at once. */
const REBALANCE_MS_MAX = 30_000;
const RETRY_MS = 300;
/** A new cluster takes a moment until it has coordinators. */
const JOIN_MS_MAX = 10_000;
const HEARTBEAT_MS_DEFAULT = 5_000;
/** So many heartbeats that failed, and the coordinator takes this member for dead. */
const HEARTBEATS_LOST_MAX = 8;
const JOINING = 0;
const LEAVING = -1;

type Heartbeat = consumerGroupHeartbeatV1.ConsumerGroupHeartbeatResponse;

export interface MembershipSetup {
  readonly cluster: Cluster;
  readonly topicId: string;
  readonly group: string;
  /** Called when the partitions that are ours have changed. */
  readonly onChange: (partitions: ReadonlySet<number>) => void;
  /** How long the first answer is waited for. */
  readonly joinMsMax?: number;
}

export class Membership {
  readonly #setup: MembershipSetup;
  readonly #memberId = randomUUID();
  #epoch = JOINING;
  #partitions: ReadonlySet<number> = new Set();
  /** Whether the coordinator has to be told what we have. */
  #isNews = false;
  #heartbeatMs = HEARTBEAT_MS_DEFAULT;
  #heardAt = performance.now();
  #problem: string | null = null;
  /** Of the operator, at the last heartbeat. */
  #mistake: OperatorError | null = null;
  #timer: NodeJS.Timeout | undefined;
  #beating: Promise<void> = Promise.resolve();
  #hasJoined = false;
  #isClosed = false;

  constructor(setup: MembershipSetup) {
    this.#setup = setup;
  }

  /** Resolves with the first answer of the coordinator, or after a while without; partitions may come later still. */
  async join(): Promise<void> {
    const until = performance.now() + (this.#setup.joinMsMax ?? JOIN_MS_MAX);
    for (;;) {
      this.#beating = this.#beat();
      await this.#beating;
      // Whoever opens the reader is told, who can end then. Later it is waited for, like anything else.
      if (this.#mistake !== null) throw this.#mistake;
      if (this.#problem === null || performance.now() > until) return;
      clearTimeout(this.#timer);
      await sleep(RETRY_MS);
    }
  }

  /** Ours now, in order. Throws while the coordinator cannot be reached and nothing is ours. */
  partitions(): number[] {
    if (this.#problem !== null && this.#partitions.size === 0) {
      throw new LogUnavailableError(`the group ${this.#setup.group} cannot be joined: ${this.#problem}`);
    }
    return [...this.#partitions].sort((one, other) => one - other);
  }

  get current(): GroupMembership {
    return { memberId: this.#memberId, epoch: this.#epoch };
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#beating;
    if (!this.#hasJoined) return;
    this.#own(new Set());
    // So that others get the partitions at once. Kafka finds out by itself if this fails.
    await this.#ask(LEAVING).catch(() => undefined);
  }

  #schedule(ms: number): void {
    if (this.#isClosed) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#beating = this.#beat();
    }, ms);
  }

  /** Never rejects: nobody waits for most of them. */
  async #beat(): Promise<void> {
    this.#mistake = null;
    try {
      this.#hear(await this.#ask(this.#epoch));
    } catch (error) {
      if (error instanceof OperatorError) this.#mistake = error;
      this.#failed(reasonOf(error));
    }
  }

  async #ask(epoch: number): Promise<Heartbeat> {
    const { cluster, group, topicId } = this.#setup;
    const isFirst = epoch === JOINING;
    const owned = [{ topicId, partitions: [...this.#partitions] }];
    const isTold = isFirst || this.#isNews;
    this.#isNews = false;
    try {
      const connection = await cluster.coordinator(group);
      return await answered(
        consumerGroupHeartbeatV1.api.async(
          connection,
          group,
          this.#memberId,
          epoch,
          null,
          null,
          isFirst ? REBALANCE_MS_MAX : -1,
          isFirst ? [cluster.topic] : null,
          null,
          null,
          // Null: as said before.
          isTold ? owned.filter(({ partitions }) => partitions.length > 0) : null,
        ),
      );
    } catch (error) {
      // It may not have been heard.
      this.#isNews = isTold;
      throw error;
    }
  }

  #hear({ errorCode, errorMessage, memberEpoch, heartbeatIntervalMs, assignment }: Heartbeat): void {
    if (errorCode !== CODE.none) {
      this.#refused(errorCode, errorMessage ?? wordsOf(errorCode));
      return;
    }
    this.#problem = null;
    this.#hasJoined = true;
    this.#heardAt = performance.now();
    this.#heartbeatMs = heartbeatIntervalMs;
    this.#epoch = memberEpoch;
    if (assignment !== null) {
      const ours = assignment.topicPartitions.filter(({ topicId }) => topicId === this.#setup.topicId);
      this.#own(new Set(ours.flatMap(({ partitions }) => partitions)));
      this.#isNews = true;
      // Of another topic of this name. What is the case now, the cluster has to say; the group's word may be an old one.
      if (ours.length < assignment.topicPartitions.length) void this.#setup.cluster.refresh().catch(() => undefined);
    }
    this.#schedule(this.#isNews ? 0 : this.#heartbeatMs);
  }

  #refused(code: number, words: string): void {
    if (code === CODE.unsupported_version && !this.#hasJoined) {
      throw new OperatorError(`Kafka is too old for its new groups: version 4 or newer is needed (${words}).`);
    }
    if (code === CODE.fenced_member_epoch || code === CODE.unknown_member_id) {
      // The coordinator gave us up: whatever we had is somebody else's.
      this.#own(new Set());
      this.#epoch = JOINING;
      this.#problem = words;
      this.#schedule(0);
      return;
    }
    this.#failed(words);
  }

  #failed(reason: string): void {
    const { cluster, group } = this.#setup;
    cluster.forgetCoordinator(group);
    this.#problem = reason;
    if (performance.now() - this.#heardAt > HEARTBEATS_LOST_MAX * this.#heartbeatMs) {
      this.#own(new Set());
      // From the start, so that the coordinator says again what is ours.
      this.#epoch = JOINING;
    }
    this.#schedule(RETRY_MS);
  }

  #own(partitions: ReadonlySet<number>): void {
    const isSame = partitions.size === this.#partitions.size && partitions.isSubsetOf(this.#partitions);
    this.#partitions = partitions;
    if (!isSame) this.#setup.onChange(partitions);
  }
}
