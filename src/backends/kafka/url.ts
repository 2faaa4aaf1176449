/**
 * Parses LOG_URL, which has the form
 *
 * `kafka://[user:password@]host:port[,host:port…]/topic[?tls=…&ca=…&sasl=…&partitions=…&replication=…]`
 *
 * A list of brokers is not a standard URL, so it is parsed by hand. Errors say what to write instead. They never quote
 * the part before the topic: it may contain a password.
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
  /** Both only for a topic that is created; null if not given. */
  readonly partitions: number | null;
  readonly replication: number | null;
}

interface KafkaLogin {
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

const CONNECT_MS_MAX = 3_000;
const REQUEST_MS_MAX = 10_000;

export function parseKafkaUrl(text: string): KafkaAddress {
  if (!text.startsWith(SCHEME)) throw invalid(`must start with ${SCHEME}, as in ${EXAMPLE}`);
  const rest = text.slice(SCHEME.length);
  const slash = rest.indexOf('/');
  const authority = slash < 0 ? rest.split('?', 1)[0] : rest.slice(0, slash);
  const [topicText = '', ...queryParts] = (slash < 0 ? '' : rest.slice(slash + 1)).split('?');
  // A slash in a password ends the broker part, and the rest of the password must not be shown.
  if (topicText.includes('@') || authority?.includes('?')) {
    throw invalid('has a user or a password with a character such as / ? or @ in it: write it as %2F, %3F or %40');
  }
  const at = (authority ?? '').lastIndexOf('@');
  const brokers = parseBrokers((authority ?? '').slice(at + 1));
  if (!TOPIC.test(topicText)) {
    throw invalid(
      `must end with the name of a topic, as in ${EXAMPLE}: letters, digits, dots, dashes and underscores, 249 at most`,
    );
  }
  const parameters = parseParameters(queryParts.join('?'));
  return {
    brokers,
    topic: topicText,
    tls: parseTls(parameters),
    sasl: parseLogin(at < 0 ? null : (authority ?? '').slice(0, at), parameters.get('sasl')),
    partitions: parseNumber(parameters, 'partitions', PARTITIONS_MAX),
    replication: parseNumber(parameters, 'replication', REPLICATION_MAX),
  };
}

export function connectionOptionsOf({ tls, sasl }: KafkaAddress): ConnectionOptions {
  return {
    connectTimeout: CONNECT_MS_MAX,
    requestTimeout: REQUEST_MS_MAX,
    ...(tls === null ? {} : { tls: tls.caFile === null ? {} : { ca: readCertificates(tls.caFile) } }),
    ...(sasl === null ? {} : { sasl: { mechanism: sasl.mechanism, username: sasl.user, password: sasl.password } }),
  };
}

function invalid(what: string): OperatorError {
  return new OperatorError(`LOG_URL ${what}.`);
}

function parseBrokers(text: string): Broker[] {
  return text.split(',').map((part, index, all) => {
    const which = all.length > 1 ? `its broker ${index + 1} of ${all.length}` : 'its broker';
    const [, ipv6, name, port] = HOST.exec(part) ?? [];
    const host = ipv6 ?? name;
    if (host === undefined) {
      throw invalid(
        `cannot be used: ${which} is not a host and a port, as in ${EXAMPLE} (several: host:9092,host:9092)`,
      );
    }
    const number = port === undefined ? PORT_DEFAULT : Number(port);
    if (number < 1 || number > PORT_MAX) throw invalid(`cannot be used: the port of ${which} must be 1 to ${PORT_MAX}`);
    return { host, port: number };
  });
}

function parseParameters(query: string): Map<string, string> {
  const found = new Map<string, string>();
  for (const part of query.split('&').filter((piece) => piece !== '')) {
    const equals = part.indexOf('=');
    const name = equals < 0 ? part : part.slice(0, equals);
    if (!PARAMETERS.includes(name)) {
      throw invalid(`has an unknown parameter; known are ${PARAMETERS.join(', ')}`);
    }
    if (found.has(name)) throw invalid(`has the parameter ${name} twice; write it once`);
    found.set(name, decoded(equals < 0 ? '' : part.slice(equals + 1), `the value of ${name}`));
  }
  return found;
}

function decoded(text: string, what: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw invalid(`cannot be used: in ${what} a % is not followed by two hexadecimal digits; write % itself as %25`);
  }
}

function parseTls(parameters: ReadonlyMap<string, string>): KafkaAddress['tls'] {
  const tls = parameters.get('tls');
  const caFile = parameters.get('ca') ?? null;
  if (tls !== undefined && tls !== 'true' && tls !== 'false') throw invalid('must have tls=true or tls=false');
  if (caFile === '') throw invalid('must have a certificate file after ca=, or no ca');
  if (caFile !== null && tls === 'false') throw invalid('has certificates (ca) but tls=false; write tls=true');
  return tls === 'true' || caFile !== null ? { caFile } : null;
}

function parseLogin(text: string | null, mechanismName: string | undefined): KafkaLogin | null {
  const known = [...MECHANISMS.keys()].map((name) => `sasl=${name}`).join(', ');
  const mechanism = mechanismName === undefined ? undefined : MECHANISMS.get(mechanismName);
  if (mechanismName !== undefined && mechanism === undefined) throw invalid(`must have one of ${known}`);
  if (text === null) {
    if (mechanism === undefined) return null;
    throw invalid(`has sasl but no user and password; write them before the host, as in kafka://user:password@host`);
  }
  const colon = text.indexOf(':');
  const user = decoded(colon < 0 ? text : text.slice(0, colon), 'the user');
  const password = decoded(colon < 0 ? '' : text.slice(colon + 1), 'the password');
  if (user === '' || password === '') throw invalid('must have a user and a password before the @, or neither');
  if (mechanism === undefined) throw invalid(`has a user, so it must have one of ${known}`);
  return { mechanism, user, password };
}

function parseNumber(parameters: ReadonlyMap<string, string>, name: string, max: number): number | null {
  const text = parameters.get(name);
  if (text === undefined) return null;
  const number = /^\d{1,9}$/.test(text) ? Number(text) : 0;
  if (number < 1 || number > max) throw invalid(`must have a number from 1 to ${max} as ${name}`);
  return number;
}

function readCertificates(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    const reason = (error as NodeJS.ErrnoException).code ?? String(error);
    throw new OperatorError(`The certificate file in LOG_URL (ca=${file}) cannot be read: ${reason}.`);
  }
}
