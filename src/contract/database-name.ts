/**
 * Which database a process works on, as it may be shown to anyone: without a password and without parameters.
 */
export interface DatabaseName {
  readonly host: string;
  readonly port: number;
  readonly database: string;
  readonly user: string;
}
