// SPDX-License-Identifier: Apache-2.0
// Runs `cases`, {NAME: async function}, one after another, prints "ok NAME" or the error for each, and exits: with 1 where one failed.
export async function runCases(cases) {
  let failed = false;
  for (const [name, run] of Object.entries(cases)) {
    try {
      await run();
      console.log(`ok ${name}`);
    } catch (error) {
      failed = true;
      console.log(`FAILED ${name}: ${error.stack}`);
    }
  }
  process.exit(failed ? 1 : 0);
}
