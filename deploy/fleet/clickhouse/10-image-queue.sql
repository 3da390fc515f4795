-- On which nodes do starts wait for images while other starts of the node wait for theirs? Such starts are those whose longest
-- phase is image; beside is how many others wait at most beside one of them, waited_ns how long all of them wait.
WITH waits AS (
    SELECT node, boot_id, sandbox, toUnixTimestamp64Nano(assumeNotNull(slowest_at)) AS since_ns,
        toUnixTimestamp64Nano(assumeNotNull(slowest_at)) + assumeNotNull(slowest_ns) AS until_ns
    FROM starts FINAL
    WHERE slowest_phase = 'image' AND slowest_ns > 0
), queued AS (
    SELECT one.node AS node, one.boot_id AS boot_id, one.sandbox AS sandbox,
        any(one.until_ns - one.since_ns) AS waits_ns, count() AS others
    FROM waits AS one JOIN waits AS other ON other.node = one.node AND other.boot_id = one.boot_id
    WHERE one.sandbox <> other.sandbox AND one.since_ns < other.until_ns AND other.since_ns < one.until_ns
    GROUP BY node, boot_id, sandbox
)
SELECT node, count() AS starts, max(others) AS beside, sum(waits_ns) AS waited_ns
FROM queued
GROUP BY node
ORDER BY waited_ns DESC, node;
