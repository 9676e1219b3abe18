/**
 * Operations that ring by themselves, and code that only looks like it.
 */
import { oneAnnouncer } from './announcing.ts';
import { plant, type Plant } from './plant.ts';

export const planted: readonly Plant[] = [
  plant(
    oneAnnouncer,
    {
      'src/engine/executions/a.ts': 'one();\ncontext.doorbell.ring({ routes });',
      'src/engine/flows/b.ts': 'context.flowWork\n  .stir();',
      'src/engine/operator/c.ts':
        'pass(doorbell.ring);\nconst { ring } = doorbell;\nconst { a, stir: begin } = work;',
      'src/engine/fine.ts': [
        '// doorbell.ring(hint)',
        "const help = 'doorbell.ring';",
        'announce(context, rows);',
        'this.#ring();',
        'pass(() => ring());',
        'watch({ stirred: () => this.#stir() });',
        'bell.ringing = true;',
      ].join('\n'),
      'src/engine/kit/announce.ts': 'doorbell.ring(hint);\nflowWork.stir();',
      'src/engine/kit/doorbell.ts': 'bell.ring(hint);',
      'src/engine/kit/announce.test.ts': 'bell.ring(hint);',
      'src/worker/worker.ts': 'wakeUp.ring();',
    },
    [
      'src/engine/executions/a.ts:2',
      'src/engine/flows/b.ts:2',
      'src/engine/operator/c.ts:1',
      'src/engine/operator/c.ts:2',
      'src/engine/operator/c.ts:3',
    ],
  ),
];
