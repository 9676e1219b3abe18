/**
 * `flowfabric doctor`: prints the result of every check, each with a fix. A problem makes the exit code 1; a warning does
 * not.
 */
import { diagnose } from '../../engine/operator/doctor.ts';
import type { Finding, Verdict } from '../../engine/operator/doctor-judgements.ts';
import type { CommandSpec } from '../command.ts';
import { EXIT } from '../exit-codes.ts';
import { parseDuration, parseWhole } from '../input.ts';
import type { Line, Tone } from '../style.ts';
import { printable, withoutSecrets } from '../../contract/secrets.ts';
import type { Session } from '../session.ts';
import { folded } from '../table.ts';
import { counted } from '../wording.ts';

interface DoctorOptions {
  listenUrl?: string;
  poolSize: string;
  transactionAge: string;
}

const POOL_SIZES = { min: 1, max: 1_000 };
const TRANSACTION_AGE_MAX_MS = 31_536_000_000;
const VERDICT_COLUMNS = 9;
const INDENT = ' '.repeat(VERDICT_COLUMNS);
const TONES: Record<Verdict, Tone> = { ok: 'good', warn: 'warn', problem: 'bad', skipped: 'dim' };

export const doctor: CommandSpec = {
  name: 'doctor',
  summary: 'check the installation',
  description:
    'Check the server, the schema, the role and what is running. Exits with 1\nwhen there is a problem.',
  options: [
    ['--listen-url <url>', 'the URL your processes listen on, when it is another one'],
    ['--pool-size <n>', 'connections in the pool of one of your processes', { default: '10' }],
    ['--transaction-age <duration>', 'report open transactions older than this', { default: '5m' }],
  ],
  examples: ['flowfabric doctor', 'flowfabric doctor --json --pool-size 20'],
  action: run,
};

async function run(session: Session, options: DoctorOptions): Promise<number> {
  const { listenUrl } = options;
  const findings = await diagnose({
    databaseUrl: session.databaseUrl(),
    schema: session.schema,
    ...(listenUrl === undefined ? {} : { listenUrl }),
    poolSize: parseWhole(options.poolSize, '--pool-size', POOL_SIZES),
    transactionAgeMs: parseDuration(options.transactionAge, '--transaction-age', TRANSACTION_AGE_MAX_MS),
    hostClock: () => Date.now(),
  });
  const count = (verdict: Verdict): number => findings.filter((found) => found.verdict === verdict).length;
  const problems = count('problem');
  const summary = { problems, warnings: count('warn'), checks: findings };
  session.printer.result(summary, [
    ...folded(findings.flatMap(linesOf), session.printer.columns),
    [
      [
        `${counted(problems, 'problem')}, ${counted(summary.warnings, 'warning')} in ${findings.length} checks.`,
        'strong',
      ],
    ],
  ]);
  return problems > 0 ? EXIT.failed : EXIT.ok;
}

function linesOf({ check, verdict, detail, fix }: Finding): Line[] {
  const found: Line = [
    [verdict.padEnd(VERDICT_COLUMNS), TONES[verdict]],
    [`${check}: `, 'strong'],
    [clean(detail)],
  ];
  return fix === null ? [found] : [found, [[`${INDENT}fix: `, 'dim'], [clean(fix)]]];
}

/** Names of applications and executions are written by others. */
function clean(text: string): string {
  return withoutSecrets(printable(text));
}
