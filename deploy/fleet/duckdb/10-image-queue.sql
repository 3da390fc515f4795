-- On which nodes do starts wait for images while other starts of the node wait for theirs? Such starts are those whose longest
-- phase is image; beside is how many others wait at most beside one of them, waited_ns how long all of them wait.
WITH waits AS (
    SELECT node, boot_id, sandbox, epoch_ns(slowest_at) AS since_ns, epoch_ns(slowest_at) + slowest_ns AS until_ns
    FROM starts
    WHERE slowest_phase = 'image' AND slowest_ns > 0
), queued AS (
    SELECT one.node, one.boot_id, one.sandbox, any_value(one.until_ns - one.since_ns) AS waited_ns, count(*) AS beside
    FROM waits AS one JOIN waits AS other USING (node, boot_id)
    WHERE one.sandbox <> other.sandbox AND one.since_ns < other.until_ns AND other.since_ns < one.until_ns
    GROUP BY ALL
)
SELECT node, count(*) AS starts, max(beside) AS beside, sum(waited_ns)::BIGINT AS waited_ns
FROM queued
GROUP BY node
ORDER BY waited_ns DESC, node;
