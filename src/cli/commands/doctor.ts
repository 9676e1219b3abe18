/**
 * `flowfabric doctor`: prints what the examination found, each with its way out. A problem makes the exit code 1; a
 * warning does not.
 */
import { diagnose } from '../../engine/operator/doctor.ts';
import type { Finding, Verdict } from '../../engine/operator/doctor-judgements.ts';
import { EXIT } from '../exit-codes.ts';
import { parseDuration, parseWhole } from '../input.ts';
import type { Line, Tone } from '../look.ts';
import { printable, withoutSecrets } from '../secrets.ts';
import type { Session } from '../session.ts';

export interface DoctorOptions {
  listenUrl?: string;
  poolSize: string;
  transactionAge: string;
}

const POOL_SIZES = { min: 1, max: 1_000 };
const TRANSACTION_AGE_MAX_MS = 31_536_000_000;
const VERDICT_COLUMNS = 9;
const INDENT = ' '.repeat(VERDICT_COLUMNS);
const TONES: Record<Verdict, Tone> = { ok: 'good', warn: 'warn', problem: 'bad', skipped: 'dim' };

export async function doctorCommand(options: DoctorOptions, session: Session): Promise<number> {
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
    ...findings.flatMap(linesOf),
    [[`${problems} problems, ${summary.warnings} warnings in ${findings.length} checks.`, 'strong']],
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
