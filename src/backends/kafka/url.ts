/**
 * Reads LOG_URL: `kafka://[user:password@]host:port[,host:port…]/topic[?tls=…&ca=…&sasl=…&partitions=…&replication=…]`.
 *
 * Several brokers make it no URL by the book, so it is taken apart by hand. What is wrong is said with what to write
 * instead. A message never repeats a text that may hold a password: the part before the topic is not quoted.
 */

import { readFileSync } from 'node:fs';
import type { Broker, ConnectionOptions, SASLOptions } from '@platformatic/kafka';
import { OperatorError } from '../../errors.ts';

export interface KafkaAddress {
  readonly brokers: readonly Broker[];
  readonly topic: string;
  /** Null: not encrypted. */
  readonly tls: { readonly caFile: string | null } | null;
  readonly sasl: KafkaLogin | null;
  /** Both only for a topic that has to be made; null where nothing is said. */
  readonly partitions: number | null;
  readonly replication: number | null;
}

export interface KafkaLogin {
  readonly mechanism: Extract<SASLOptions['mechanism'], 'PLAIN' | 'SCRAM-SHA-256' | 'SCRAM-SHA-512'>;
  readonly user: string;
  readonly password: string;
}

const SCHEME = 'kafka://';
const EXAMPLE = 'kafka://host:9092/sluice';
const PORT_DEFAULT = 9_092;
const PORT_MAX = 65_535;
const PARTITIONS_MAX = 10_000;
const REPLICATION_MAX = 100;
const TOPIC = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$/;
const HOST = /^(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?))(?::(\d{1,5}))?$/;
const MECHANISMS = new Map<string, KafkaLogin['mechanism']>([
  ['plain', 'PLAIN'],
  ['scram-sha-256', 'SCRAM-SHA-256'],
  ['scram-sha-512', 'SCRAM-SHA-512'],
]);
const PARAMETERS = ['tls', 'ca', 'sasl', 'partitions', 'replication'];

/** How long the client may take to connect, and to get an answer, before it is taken as gone. */
const CONNECT_MS_MAX = 3_000;
const REQUEST_MS_MAX = 10_000;

export function parseKafkaUrl(text: string): KafkaAddress {
  if (!text.startsWith(SCHEME)) throw wrong(`must start with ${SCHEME}, as in ${EXAMPLE}`);
  const rest = text.slice(SCHEME.length);
  const slash = rest.indexOf('/');
  const place = slash < 0 ? rest.split('?', 1)[0] : rest.slice(0, slash);
  const [topicText = '', ...queryParts] = (slash < 0 ? '' : rest.slice(slash + 1)).split('?');
  // A slash in a password ends the part that names brokers, and the rest of it must not be shown.
  if (topicText.includes('@') || place?.includes('?')) {
    throw wrong('has a user or a password with a character such as / ? or @ in it: write it as %2F, %3F or %40');
  }
  const at = (place ?? '').lastIndexOf('@');
  const brokers = brokersIn((place ?? '').slice(at + 1));
  if (!TOPIC.test(topicText)) {
    throw wrong(
      `must end with the name of a topic, as in ${EXAMPLE}: letters, digits, dots, dashes and underscores, 249 at most`,
    );
  }
  const parameters = parametersIn(queryParts.join('?'));
  return {
    brokers,
    topic: topicText,
    tls: tlsIn(parameters),
    sasl: loginIn(at < 0 ? null : (place ?? '').slice(0, at), parameters.get('sasl')),
    partitions: numberIn(parameters, 'partitions', PARTITIONS_MAX),
    replication: numberIn(parameters, 'replication', REPLICATION_MAX),
  };
}

/** What the client needs to connect. Reads the file of certificates. */
export function connectionOptionsOf({ tls, sasl }: KafkaAddress): ConnectionOptions {
  return {
    connectTimeout: CONNECT_MS_MAX,
    requestTimeout: REQUEST_MS_MAX,
    ...(tls === null ? {} : { tls: tls.caFile === null ? {} : { ca: certificatesIn(tls.caFile) } }),
    ...(sasl === null ? {} : { sasl: { mechanism: sasl.mechanism, username: sasl.user, password: sasl.password } }),
  };
}

function wrong(what: string): OperatorError {
  return new OperatorError(`LOG_URL ${what}.`);
}

function brokersIn(text: string): Broker[] {
  return text.split(',').map((part, index, all) => {
    const which = all.length > 1 ? `its broker ${index + 1} of ${all.length}` : 'its broker';
    const [, ipv6, name, port] = HOST.exec(part) ?? [];
    const host = ipv6 ?? name;
    if (host === undefined) {
      throw wrong(`cannot be used: ${which} is not a host and a port, as in ${EXAMPLE} (several: host:9092,host:9092)`);
    }
    const number = port === undefined ? PORT_DEFAULT : Number(port);
    if (number < 1 || number > PORT_MAX) throw wrong(`cannot be used: the port of ${which} must be 1 to ${PORT_MAX}`);
    return { host, port: number };
  });
}

function parametersIn(query: string): Map<string, string> {
  const found = new Map<string, string>();
  for (const part of query.split('&').filter((piece) => piece !== '')) {
    const equals = part.indexOf('=');
    const name = equals < 0 ? part : part.slice(0, equals);
    if (!PARAMETERS.includes(name)) {
      throw wrong(`has a parameter that is not known; known are ${PARAMETERS.join(', ')}`);
    }
    if (found.has(name)) throw wrong(`says ${name} twice; say it once`);
    found.set(name, decoded(equals < 0 ? '' : part.slice(equals + 1), `the value of ${name}`));
  }
  return found;
}

function decoded(text: string, what: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw wrong(`cannot be used: in ${what} a % is not followed by two hexadecimal digits; write % itself as %25`);
  }
}

function tlsIn(parameters: ReadonlyMap<string, string>): KafkaAddress['tls'] {
  const tls = parameters.get('tls');
  const caFile = parameters.get('ca') ?? null;
  if (tls !== undefined && tls !== 'true' && tls !== 'false') throw wrong('must say tls=true or tls=false');
  if (caFile === '') throw wrong('must name a file of certificates after ca=, or leave ca out');
  if (caFile !== null && tls === 'false') throw wrong('names certificates (ca) but says tls=false; say tls=true');
  return tls === 'true' || caFile !== null ? { caFile } : null;
}

function loginIn(text: string | null, mechanismName: string | undefined): KafkaLogin | null {
  const known = [...MECHANISMS.keys()].map((name) => `sasl=${name}`).join(', ');
  const mechanism = mechanismName === undefined ? undefined : MECHANISMS.get(mechanismName);
  if (mechanismName !== undefined && mechanism === undefined) throw wrong(`must say one of ${known}`);
  if (text === null) {
    if (mechanism === undefined) return null;
    throw wrong(
      `says sasl but neither user nor password; write them before the host, as in kafka://user:password@host`,
    );
  }
  const colon = text.indexOf(':');
  const user = decoded(colon < 0 ? text : text.slice(0, colon), 'the user');
  const password = decoded(colon < 0 ? '' : text.slice(colon + 1), 'the password');
  if (user === '' || password === '') throw wrong('must have a user and a password before the @, or neither');
  if (mechanism === undefined) throw wrong(`has a user, so it must say how to sign in: one of ${known}`);
  return { mechanism, user, password };
}

function numberIn(parameters: ReadonlyMap<string, string>, name: string, max: number): number | null {
  const text = parameters.get(name);
  if (text === undefined) return null;
  const number = /^\d{1,9}$/.test(text) ? Number(text) : 0;
  if (number < 1 || number > max) throw wrong(`must say ${name} as a number from 1 to ${max}`);
  return number;
}

function certificatesIn(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    const reason = (error as NodeJS.ErrnoException).code ?? String(error);
    throw new OperatorError(`The certificates that LOG_URL names (ca=${file}) cannot be read: ${reason}.`);
  }
}
