/**
 * Membership in a consumer group by Kafka 4's protocol (KIP-848). A heartbeat reports which partitions this member has; the
 * response assigns those that it should have. Partitions move one by one, and other members keep reading meanwhile. It
 * replaces the client's own consumer, which never joins again after the coordinator has removed it
 * (docs/decisions/038-kafka-client.md).
 *
 * A revoked partition is dropped immediately, before the next heartbeat lets the coordinator assign it to another member.
 * After heartbeats have failed for a session, all partitions are dropped: other members have them by then. Correctness
 * does not depend on any of this: the store accepts the records of a partition only in order.
 */

import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { consumerGroupHeartbeatV1 } from '@platformatic/kafka';
import { OperatorError } from '../../errors.ts';
import { LogUnavailableError } from '../../log.ts';
import type { Cluster } from './cluster.ts';
import { responseOf, CODE, errorText, describeCode } from './errors.ts';
import type { GroupMembership } from './group-offsets.ts';

/** How long a member may take to drop a revoked partition. */
const REBALANCE_MS_MAX = 30_000;
const RETRY_MS = 300;
/** A new cluster has no coordinators for a moment. */
const JOIN_MS_MAX = 10_000;
const HEARTBEAT_MS_DEFAULT = 5_000;
/** After this many failed heartbeats the coordinator has removed this member. */
const HEARTBEATS_LOST_MAX = 8;
const JOINING = 0;
const LEAVING = -1;

type Heartbeat = consumerGroupHeartbeatV1.ConsumerGroupHeartbeatResponse;

interface MembershipSetup {
  readonly cluster: Cluster;
  readonly topicId: string;
  readonly group: string;
  readonly onChange: (partitions: ReadonlySet<number>) => void;
  /** How long `join` waits for the first response. */
  readonly joinMsMax?: number;
}

export class Membership {
  readonly #setup: MembershipSetup;
  readonly #memberId = randomUUID();
  #epoch = JOINING;
  #partitions: ReadonlySet<number> = new Set();
  /** Whether the next heartbeat must list our partitions. */
  #mustReport = false;
  #heartbeatMs = HEARTBEAT_MS_DEFAULT;
  #respondedAt = performance.now();
  #problem: string | null = null;
  #operatorError: OperatorError | null = null;
  #timer: NodeJS.Timeout | undefined;
  #heartbeat: Promise<void> = Promise.resolve();
  #hasJoined = false;
  #isClosed = false;

  constructor(setup: MembershipSetup) {
    this.#setup = setup;
  }

  /** Resolves with the first response of the coordinator, or after `joinMsMax`. Partitions may be assigned later. */
  async join(): Promise<void> {
    const until = performance.now() + (this.#setup.joinMsMax ?? JOIN_MS_MAX);
    for (;;) {
      this.#heartbeat = this.#sendHeartbeat();
      await this.#heartbeat;
      // The caller can exit now. After `join`, such an error is retried like any other.
      if (this.#operatorError !== null) throw this.#operatorError;
      if (this.#problem === null || performance.now() > until) return;
      clearTimeout(this.#timer);
      await sleep(RETRY_MS);
    }
  }

  /** The assigned partitions, in order. Throws while the coordinator is unreachable and none are assigned. */
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
    await this.#heartbeat;
    if (!this.#hasJoined) return;
    this.#setPartitions(new Set());
    // Other members get the partitions immediately; if this fails, after the session timeout.
    await this.#ask(LEAVING).catch(() => undefined);
  }

  #schedule(ms: number): void {
    if (this.#isClosed) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#heartbeat = this.#sendHeartbeat();
    }, ms);
  }

  /** Never rejects: most heartbeats are not awaited. */
  async #sendHeartbeat(): Promise<void> {
    this.#operatorError = null;
    try {
      this.#handleResponse(await this.#ask(this.#epoch));
    } catch (error) {
      if (error instanceof OperatorError) this.#operatorError = error;
      this.#failed(errorText(error));
    }
  }

  async #ask(epoch: number): Promise<Heartbeat> {
    const { cluster, group, topicId } = this.#setup;
    const isFirst = epoch === JOINING;
    const owned = [{ topicId, partitions: [...this.#partitions] }];
    const isReported = isFirst || this.#mustReport;
    this.#mustReport = false;
    try {
      const connection = await cluster.coordinator(group);
      return await responseOf(
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
          // Null: as before.
          isReported ? owned.filter(({ partitions }) => partitions.length > 0) : null,
        ),
      );
    } catch (error) {
      // The coordinator may not have received it.
      this.#mustReport = isReported;
      throw error;
    }
  }

  #handleResponse({ errorCode, errorMessage, memberEpoch, heartbeatIntervalMs, assignment }: Heartbeat): void {
    if (errorCode !== CODE.none) {
      this.#handleError(errorCode, errorMessage ?? describeCode(errorCode));
      return;
    }
    this.#problem = null;
    this.#hasJoined = true;
    this.#respondedAt = performance.now();
    this.#heartbeatMs = heartbeatIntervalMs;
    this.#epoch = memberEpoch;
    if (assignment !== null) {
      const ours = assignment.topicPartitions.filter(({ topicId }) => topicId === this.#setup.topicId);
      this.#setPartitions(new Set(ours.flatMap(({ partitions }) => partitions)));
      this.#mustReport = true;
      // A topic of the same name but another id. Metadata decides which one is current: the assignment may be outdated.
      if (ours.length < assignment.topicPartitions.length) void this.#setup.cluster.refresh().catch(() => undefined);
    }
    this.#schedule(this.#mustReport ? 0 : this.#heartbeatMs);
  }

  #handleError(code: number, message: string): void {
    if (code === CODE.unsupported_version && !this.#hasJoined) {
      throw new OperatorError(`Kafka is too old: version 4 or newer is required (${message}).`);
    }
    if (code === CODE.fenced_member_epoch || code === CODE.unknown_member_id) {
      // The coordinator removed this member: others have its partitions.
      this.#setPartitions(new Set());
      this.#epoch = JOINING;
      this.#problem = message;
      this.#schedule(0);
      return;
    }
    this.#failed(message);
  }

  #failed(reason: string): void {
    const { cluster, group } = this.#setup;
    cluster.forgetCoordinator(group);
    this.#problem = reason;
    if (performance.now() - this.#respondedAt > HEARTBEATS_LOST_MAX * this.#heartbeatMs) {
      this.#setPartitions(new Set());
      // Joining again makes the coordinator send the full assignment.
      this.#epoch = JOINING;
    }
    this.#schedule(RETRY_MS);
  }

  #setPartitions(partitions: ReadonlySet<number>): void {
    const isSame = partitions.size === this.#partitions.size && partitions.isSubsetOf(this.#partitions);
    this.#partitions = partitions;
    if (!isSame) this.#setup.onChange(partitions);
  }
}
