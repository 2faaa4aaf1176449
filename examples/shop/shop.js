/**
 * A shop with a cart, a sign-in and an order. Each of them makes one call of the SDK, through `send`. The person is known by
 * an anonymous id that the SDK keeps; `identify` connects it with the user name and the e-mail address.
 */

const element = (id) => document.getElementById(id);
const cart = [];

/** A call of the SDK. One that is made before the SDK has loaded waits in an array, so the shop works without it. */
function send(method, ...args) {
  (window.sluice ||= []).push([method, ...args]);
  const line = document.createElement('li');
  line.textContent = `${method}(${args.map((value) => JSON.stringify(value)).join(', ')})`;
  element('sent').append(line);
}

function showCart() {
  element('cart').textContent = cart.map(({ product }) => product).join(', ') || 'empty';
  element('order').disabled = cart.length === 0;
}

function showUser(user) {
  element('user').textContent = user;
  element('sign-in').hidden = user !== '';
  element('signed-in').hidden = user === '';
}

element('products').addEventListener('click', ({ target }) => {
  const { product, price } = target.dataset;
  if (product === undefined) return;
  cart.push({ product, price: Number(price) });
  showCart();
  send('track', 'product_added', { product, price: Number(price) });
});

element('sign-in').addEventListener('submit', (event) => {
  event.preventDefault();
  const fields = new FormData(event.target);
  showUser(fields.get('user'));
  send('identify', { user_id: fields.get('user'), email: fields.get('email') }, { newsletter: false });
});

element('order').addEventListener('click', () => {
  const revenue = cart.reduce((sum, { price }) => sum + price, 0);
  send('track', 'order_placed', { revenue, currency: 'EUR', items: cart.length });
  cart.length = 0;
  showCart();
});

element('sign-out').addEventListener('click', () => {
  showUser('');
  send('reset');
});
