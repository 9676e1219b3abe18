/**
 * The values that payloads, results and steps are made of. What JSON cannot represent is refused.
 */

/** Anything JSON can represent. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
