/**
 * The values that payloads, results and steps are made of. What JSON cannot say is refused where it is given.
 */

/** Anything JSON can say. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
