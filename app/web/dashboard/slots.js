// Who holds the slots, read from the TaskManagers.

import { get } from "./api.js";

// Each is asked for its slots by itself. Of the others of a large cluster only the numbers are shown.
const ASKED_MAX = 16;

/** {managers: [{id, total, free, holders: [[job id, slots], ...] or null}], byJob: {job id: slots}} */
export async function readSlots(signal) {
  const { taskmanagers } = await get("taskmanagers", signal);
  const managers = await Promise.all(
    taskmanagers.map(async ({ id, slotsNumber, freeSlots }, place) => {
      const details = place < ASKED_MAX ? await get(`taskmanagers/${encodeURIComponent(id)}`, signal) : null;
      return { id, total: slotsNumber, free: freeSlots, holders: details && counted(details.allocatedSlots) };
    }),
  );
  const byJob = {};
  for (const { holders } of managers)
    for (const [id, slots] of holders ?? []) byJob[id] = (byJob[id] ?? 0) + slots;
  return { managers, byJob };
}

function counted(allocated) {
  const slots = new Map();
  for (const { jobId } of allocated) slots.set(jobId, (slots.get(jobId) ?? 0) + 1);
  return [...slots].sort((one, other) => other[1] - one[1]);
}
