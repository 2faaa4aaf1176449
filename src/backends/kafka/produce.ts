/**
 * One produce request: batches of several partitions, to the broker that leads them, acknowledged by all replicas in
 * sync. The client's own request knows one producer id for all partitions; here each batch comes encoded with its own,
 * so that a batch can be sent again byte for byte.
 */

import { type Connection, createAPI, initProducerIdV4, ProduceAcks, produceV11, Writer } from '@platformatic/kafka';
import { answered, CODE, wordsOf } from './codes.ts';
import { LogUnavailableError } from '../../log.ts';
import type { Batch, ProducerId } from './batches.ts';

const PRODUCE_KEY = 0;
const PRODUCE_VERSION = 11;

export interface PartitionBatch {
  readonly partition: number;
  readonly records: Batch['records'];
}

type Arguments = [topic: string, batches: readonly PartitionBatch[], timeoutMs: number];

const api = createAPI<Arguments, produceV11.ProduceResponse>(
  PRODUCE_KEY,
  PRODUCE_VERSION,
  (topic: string, batches: readonly PartitionBatch[], timeoutMs: number) =>
    Writer.create()
      .appendString(null)
      .appendInt16(ProduceAcks.ALL)
      .appendInt32(timeoutMs)
      .appendArray([topic], (forTopic, name) => {
        forTopic.appendString(name).appendArray([...batches], (writer, { partition, records }) => {
          writer
            .appendInt32(partition)
            .appendUnsignedVarInt(records.length + 1)
            .appendFrom(records);
        });
      })
      .appendTaggedFields(),
  produceV11.parseResponse,
);

/** By partition, the code that Kafka answered with and what it said beyond it. */
export async function produce(
  connection: Connection,
  ...asked: Arguments
): Promise<Map<number, { readonly code: number; readonly words: string }>> {
  const { responses } = await answered(api.async(connection, ...asked));
  return new Map(
    responses.flatMap(({ partitionResponses }) =>
      partitionResponses.map(({ index, errorCode, errorMessage }) => [
        index,
        { code: errorCode, words: errorMessage ?? wordsOf(errorCode) },
      ]),
    ),
  );
}

export async function newProducerId(connection: Connection): Promise<ProducerId> {
  const answer = await answered(initProducerIdV4.api.async(connection, null, 0, -1n, -1));
  if (answer.errorCode !== CODE.none) throw new LogUnavailableError(wordsOf(answer.errorCode));
  return { id: answer.producerId, epoch: answer.producerEpoch };
}
