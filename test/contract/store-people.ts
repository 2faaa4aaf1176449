/** The contract of the store: lists of people, the search by beginnings and properties, and what to call a person. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, suite, test } from 'node:test';
import { BadCursorError, type FoundPerson, type PeoplePage, type PeopleQuery } from '../../src/store.ts';
import {
  ACT,
  type OpenStore,
  OTHER_TENANT,
  person,
  profileOf,
  type StoreUnderTest,
  send,
  TENANT,
} from './store-feeding.ts';

const EVERYONE: PeopleQuery = { text: null, exact: [], property: null, budgetMs: 60_000, limit: 50, cursor: null };

export function storePeopleContract(open: OpenStore): void {
  suite('people', () => {
    let under: StoreUnderTest;
    beforeEach(async () => {
      under = await open();
    });
    afterEach(() => under.close());

    async function pagesOf(query: Partial<PeopleQuery>): Promise<PeoplePage[]> {
      const pages: PeoplePage[] = [];
      for (let cursor: string | null = null; ; ) {
        const page: PeoplePage = await under.store.searchPeople(TENANT, { ...EVERYONE, ...query, cursor });
        pages.push(page);
        assert.ok(pages.length < 1_000, 'the search never ends');
        if (page.nextCursor === null) return pages;
        cursor = page.nextCursor;
      }
    }

    const found = async (query: Partial<PeopleQuery>): Promise<FoundPerson[]> =>
      (await pagesOf(query)).flatMap(({ rows }) => rows);
    const userIds = async (query: Partial<PeopleQuery>): Promise<(string | undefined)[]> =>
      (await found(query)).map(({ profile }) => profile.identifiers.user_id[0]);
    const search = (text: string): Promise<(string | undefined)[]> => userIds({ text });

    test('without a text everyone is listed, newest first, page by page', async () => {
      for (let n = 0; n < 7; n += 1) await send(under, [person({ user_id: `u${n}` })]);
      await send(under, [person({ user_id: 'stranger' })], { tenantId: OTHER_TENANT });
      const pages = await pagesOf({ limit: 3 });
      assert.deepEqual(
        pages.map(({ rows }) => rows.map(({ profile }) => profile.identifiers.user_id[0])),
        [['u6', 'u5', 'u4'], ['u3', 'u2', 'u1'], ['u0']],
      );
      assert.ok(pages.every(({ isPartial }) => !isPartial));
      assert.deepEqual(pages[0]?.rows[0]?.profile, await profileOf(under, 'user_id', 'u6'));
      assert.deepEqual(pages[0]?.rows[0]?.matched, []);
    });

    test('people are found by the beginning of each identifier, in any case, and by nothing in the middle', async () => {
      const identifiers = {
        user_id: 'Cust-7',
        email: 'Ada@Example.com',
        phone_number: '+49 30 901820',
        anon_id: 'visit_9',
      };
      await send(under, [person(identifiers), person({ user_id: 'other' })]);
      const matched = async (text: string): Promise<unknown> => (await found({ text }))[0]?.matched;
      assert.deepEqual(await matched('cust'), ['user_id']);
      assert.deepEqual(await matched('ADA@ex'), ['email']);
      assert.deepEqual(await matched('+4930'), ['phone_number']);
      assert.deepEqual(await matched('+49 30 9'), ['phone_number']);
      assert.deepEqual(await matched('+49 (30) 90'), ['phone_number']);
      assert.deepEqual(await matched('visit_'), ['anon_id']);
      for (const text of ['example', 'visit%', 'visitx9', '30901820', 'ust-7', 'Cust-77']) {
        assert.deepEqual(await found({ text }), [], text);
      }
    });

    test('people are found by the beginning of any word of their names', async () => {
      const names = { user_id: 'u1', first_name: 'Ada Maria', last_name: 'Öberg O"Neil' };
      await send(under, [person(names), person({ user_id: 'u2', name: '王 小明' })]);
      for (const text of ['ada', 'ADA MARIA ÖB', 'mar', 'öb', 'ÖBERG', 'o"n', 'Ada Maria Öberg O"Neil']) {
        const [first] = await found({ text });
        assert.deepEqual(first?.matched, ['name'], text);
      }
      for (const text of ['王', '小明', '王 小']) assert.deepEqual(await search(text), ['u2'], text);
      for (const text of ['da', 'aria', 'neil', 'first_name', '明']) assert.deepEqual(await search(text), [], text);
    });

    test('people are found whatever the case and the encoding of their letters', async () => {
      // With the accent as a part of its letter, and as a character of its own.
      const [one, two] = ['Émile', 'E\u0301mile'];
      const names = [one, two, 'ΟΔΥΣΣΕΑΣ', 'İpek', '한글'.normalize('NFD')];
      await send(
        under,
        names.map((name, n) => person({ user_id: `ΜΑΣΑ-${n}`, name })),
      );
      const numbers = async (text: string): Promise<number[]> =>
        (await search(text)).map((id) => Number(id?.at(-1))).sort((a, b) => a - b);
      for (const text of [one, two, one.toLowerCase(), two.toUpperCase(), 'É', 'e\u0301m']) {
        assert.deepEqual(await numbers(text), [0, 1], text);
      }
      for (const text of ['ΟΔΥΣ', 'οδυσσεασ', 'οδυσσεας', 'ΟΔΥΣΣΕΑΣ']) assert.deepEqual(await numbers(text), [2], text);
      for (const text of ['İp', 'i\u0307p']) assert.deepEqual(await numbers(text), [3], text);
      for (const text of ['한', '한글']) assert.deepEqual(await numbers(text), [4], text);
      for (const text of ['ΜΑΣ', 'μας', 'μασα-']) assert.deepEqual(await numbers(text), [0, 1, 2, 3, 4], text);
      assert.deepEqual(await numbers('emile'), []);
    });

    test('a name counts as it is now, also where a store has not brought all rows up to date', async () => {
      const renamed = (name: string): object[] =>
        Array.from({ length: 200 }, (_, n) => person({ user_id: `u${n}`, first_name: name }));
      await send(under, [person({ anon_id: 'a' }), person({ user_id: 'u0' })]);
      await send(under, [person({ user_id: 'u0', anon_id: 'a' })]);
      await send(under, renamed('Before'));
      assert.equal((await search('bef')).length, 200);
      await send(under, renamed('After'));
      assert.deepEqual(await search('bef'), []);
      assert.equal((await search('aft')).length, 200);
    });

    test('exact matches come first and once, and the cursor continues with the others', async () => {
      await send(under, [person({ user_id: '12' })]);
      await send(under, [person({ email: '12' })]);
      for (const id of ['123', '124']) await send(under, [person({ user_id: id })]);
      const exact = [
        { type: 'user_id', normalised: '12' },
        { type: 'email', normalised: '12' },
      ] as const;
      const ids = async (limit: number): Promise<unknown[]> =>
        (await pagesOf({ text: '12', exact, limit })).map(({ rows }) =>
          rows.map(({ matched, profile }) => [...matched, profile.identifiers.user_id[0] ?? 'none']),
        );
      const [first, second] = [
        [
          ['user_id', '12'],
          ['email', 'none'],
        ],
        [
          ['user_id', '124'],
          ['user_id', '123'],
        ],
      ];
      assert.deepEqual(await ids(50), [first, second]);
      assert.deepEqual(
        await ids(1),
        [...first, ...second].map((row) => [row]),
      );
      const [byId] = await found({ text: (await profileOf(under, 'user_id', '123')).id.toUpperCase() });
      assert.deepEqual(byId?.matched, ['id']);
    });

    test('a property narrows a list down, by its name or by its value', async () => {
      await send(under, [
        person({ user_id: 'u1', first_name: 'Ann' }, [{}], { plan: 'pro', seats: 5, 'größe"': 'x' }),
        person({ user_id: 'u2', first_name: 'Ann', city: 'Lisbon' }, [{}], { plan: 'free', seats: '5' }),
        person({ user_id: 'u3', first_name: 'Bob' }, [{}], { planet: 'pro' }),
      ]);
      const having = (name: string, value: string | null = null): Promise<unknown[]> =>
        userIds({ property: { name, value } });
      assert.deepEqual(await having('plan'), ['u2', 'u1']);
      assert.deepEqual(await having('plan', 'pro'), ['u1']);
      assert.deepEqual(await having('seats', '5'), ['u2', 'u1']);
      assert.deepEqual(await having('größe"', 'x'), ['u1']);
      assert.deepEqual(await having('city', 'Lisbon'), ['u2']);
      for (const [name, value] of [
        ['pla', null],
        ['plan', 'Pro'],
        ['__proto__', null],
      ] as const) {
        assert.deepEqual(await having(name, value), []);
      }
      assert.deepEqual(await userIds({ text: 'ann', property: { name: 'plan', value: 'free' } }), ['u2']);
      const exact = [{ type: 'user_id', normalised: 'u1' }] as const;
      assert.deepEqual(await userIds({ text: 'u1', exact, property: { name: 'plan', value: 'free' } }), []);
    });

    test('merged people are one, found by what any of them had; erased ones are not found', async () => {
      await send(under, [person({ anon_id: 'a-1', first_name: 'Merged' }, [{}], { plan: 'pro' })]);
      await send(under, [person({ user_id: 'u-1' })]);
      await send(under, [person({ user_id: 'u-1', anon_id: 'a-1' })]);
      const { id } = await profileOf(under, 'user_id', 'u-1');
      for (const query of [
        {},
        { text: 'a-' },
        { text: 'u-' },
        { text: 'mer' },
        { property: { name: 'plan', value: null } },
      ]) {
        assert.deepEqual(
          (await found(query)).map(({ profile }) => profile.id),
          [id],
        );
      }
      await under.store.erase(TENANT, id, ACT);
      for (const query of [{}, { text: 'a-' }, { text: 'mer' }]) assert.deepEqual(await found(query), []);
    });

    test('a search without time is in many pages that say so, and finds the same', async () => {
      const users = Array.from({ length: 900 }, (_, n) =>
        person({ user_id: `u${n}`, first_name: n % 300 ? 'Ann' : 'Zoe' }),
      );
      for (const tenantId of [TENANT, OTHER_TENANT, TENANT]) await send(under, users, { tenantId });
      await send(
        under,
        Array.from({ length: 900 }, (_, n) => person({ user_id: `v${n}` })),
      );
      const pages = await pagesOf({ text: 'zoe', budgetMs: 0 });
      assert.ok(pages.length > 1);
      assert.ok(pages.slice(0, -1).every(({ isPartial }) => isPartial));
      const names = pages.flatMap(({ rows }) => rows.map(({ profile }) => profile.identifiers.user_id[0]));
      assert.deepEqual(names, ['u600', 'u300', 'u0']);
      assert.deepEqual(await search('zoe'), names);
      assert.equal((await found({ limit: 500 })).length, 1_800);
    });

    test('what is no cursor of this list is refused', async () => {
      await send(under, [person({ user_id: 'u1' }), person({ user_id: 'u2' })]);
      await send(under, [person({ user_id: 'u1' })], { tenantId: OTHER_TENANT });
      const { nextCursor } = await under.store.searchPeople(TENANT, { ...EVERYONE, limit: 1 });
      assert.ok(nextCursor !== null);
      await under.store.searchPeople(TENANT, { ...EVERYONE, cursor: nextCursor });
      for (const cursor of ['', 'x']) {
        await assert.rejects(under.store.searchPeople(TENANT, { ...EVERYONE, cursor }), BadCursorError);
      }
      const others = { ...EVERYONE, cursor: nextCursor };
      await assert.rejects(under.store.searchPeople(TENANT, { ...others, text: 'u' }), BadCursorError);
      await assert.rejects(under.store.searchPeople(OTHER_TENANT, others), BadCursorError);
    });

    test('people have names and a few identifiers, by whichever of their ids', async () => {
      const anon = Array.from({ length: 5 }, (_, n) => person({ user_id: 'u1', anon_id: `a${n}` }));
      await send(under, [person({ user_id: 'u1', first_name: ' Ada ', last_name: 'L' }), ...anon]);
      await send(under, [person({ email: 'X@y.z' }), person({ user_id: 'u3', full_name: 'Full', name: ' ' })]);
      await send(under, [person({ user_id: 'u4', anon_id: 'a0', name: 'x'.repeat(70_000) })]);
      const ids = (await found({})).map(({ profile }) => profile.id);
      const { mergedIds } = await profileOf(under, 'user_id', 'u1');
      const people = await under.store.people(TENANT, [...ids, ...mergedIds, ids[0]?.toUpperCase() ?? '', 'x']);
      assert.deepEqual(
        ids.map((id) => people.get(id)?.name),
        [null, 'Full', null, 'Ada L'],
      );
      const ada = people.get(ids[3] ?? '');
      assert.deepEqual(ada?.identifiers, { user_id: ['u1'], email: [], phone_number: [], anon_id: ['a0', 'a1', 'a2'] });
      for (const id of mergedIds) assert.deepEqual(people.get(id), ada);
      assert.deepEqual(people.get(ids[0]?.toUpperCase() ?? ''), people.get(ids[0] ?? ''));
      assert.equal(people.get('x'), undefined);
      assert.equal((await under.store.people(TENANT, [])).size, 0);
    });
  });
}
