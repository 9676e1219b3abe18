/**
 * A worker or producer process. It does what the run tells it: imports a module and calls one of its functions.
 * Whatever a function needs in the next call it puts into the seat's `kept`.
 */
import process from 'node:process';

const seat = {
  kept: {},
  /** Reports something to the run during a call. */
  say: (news) => process.send({ news }),
};

async function obey({ id, module, name, args }) {
  const { [name]: call } = await import(module);
  if (call === undefined) throw new Error(`${module} exports no ${name}.`);
  return { id, answer: await call(args, seat) };
}

process.on('message', (order) => {
  if (order === 'leave') process.exit(0);
  obey(order).then(
    (answer) => process.send(answer),
    (error) => process.send({ id: order.id, error: error?.stack ?? String(error) }),
  );
});
// The run is gone: nobody would stop this process any more.
process.on('disconnect', () => process.exit(1));
