// Who holds the slots, read from the TaskManagers.

import { get } from "./api.js";

// Each is asked for its slots by itself. Of the others of a large cluster only the numbers are shown.
const ASKED_MAX = 16;

/** {managers: [{id, total, free, holders: [[job id, slots], ...] or null}], byJob: {job id: slots}, or null if not all
 * managers were asked} */
export async function readSlots(signal) {
  const { taskmanagers } = await get("taskmanagers", signal);
  const found = await Promise.all(
    taskmanagers.map(async ({ id, slotsNumber, freeSlots }, place) => {
      const holders = place < ASKED_MAX ? await holdersOf(id, signal) : null;
      return holders === undefined ? [] : { id, total: slotsNumber, free: freeSlots, holders };
    }),
  );
  const managers = found.flat();
  if (managers.some(({ holders }) => holders === null)) return { managers, byJob: null };
  const byJob = {};
  for (const { holders } of managers)
    for (const [id, slots] of holders) byJob[id] = (byJob[id] ?? 0) + slots;
  return { managers, byJob };
}

/** Undefined if it has gone since it was listed. */
async function holdersOf(id, signal) {
  try {
    return counted((await get(`taskmanagers/${encodeURIComponent(id)}`, signal)).allocatedSlots);
  } catch (error) {
    if (error.status === 404) return undefined;
    throw error;
  }
}

function counted(allocated) {
  const slots = new Map();
  for (const { jobId } of allocated) slots.set(jobId, (slots.get(jobId) ?? 0) + 1);
  return [...slots].sort((one, other) => other[1] - one[1]);
}
