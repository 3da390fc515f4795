-- Which address did sandboxes of two nodes have at once, and since when (since_ns, since the epoch)? A sandbox has an address
-- until it is removed, or until the last event of its boot. Only interfaces count that an ADD has set up: others, as a docker0 in a
-- pod, may have the same address everywhere.
WITH told AS (
    SELECT DISTINCT node, boot_id, boot_ns, seq, event, epoch_ns(ts) AS at_ns, sandbox, ifname, address
    FROM events
    WHERE event IN ('address.added', 'address.removed') AND sandbox IS NOT NULL
        AND ifname <> 'lo' AND NOT starts_with(address, 'fe80:')
), set_up AS (
    SELECT DISTINCT node, boot_id, sandbox, ifname
    FROM events
    WHERE event = 'cni.finished' AND command = 'ADD'
), ends AS (
    SELECT node, boot_id, epoch_ns(max(ts)) AS last_ns
    FROM events
    GROUP BY node, boot_id
), held AS (
    SELECT node, boot_id, sandbox, address,
        min(CASE WHEN event = 'address.added' THEN at_ns END) AS since_ns,
        max(CASE WHEN event = 'address.added' THEN at_ns END) AS again_ns,
        max(CASE WHEN event = 'address.removed' THEN at_ns END) AS removed_ns,
        CASE WHEN removed_ns > again_ns THEN removed_ns ELSE any_value(last_ns) END AS until_ns
    FROM told JOIN set_up USING (node, boot_id, sandbox, ifname) JOIN ends USING (node, boot_id)
    GROUP BY node, boot_id, sandbox, address
    HAVING since_ns IS NOT NULL
)
SELECT one.address, one.node, one.sandbox, other.node AS other_node, other.sandbox AS other_sandbox,
    greatest(one.since_ns, other.since_ns) AS since_ns
FROM held AS one JOIN held AS other ON other.address = one.address AND one.node < other.node
WHERE one.since_ns < other.until_ns AND other.since_ns < one.until_ns
ORDER BY since_ns, one.address, one.node, other.node;
