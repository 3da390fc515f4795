-- Which address did sandboxes of two nodes have at once, and since when (since_ns, since the epoch)? A sandbox has an address
-- until it is removed, or until the last event of its boot.
WITH told AS (
    SELECT DISTINCT node, boot_id, seq, event, toUnixTimestamp64Nano(ts) AS at_ns, sandbox, address
    FROM events
    WHERE event IN ('address.added', 'address.removed') AND sandbox IS NOT NULL
        AND ifname <> 'lo' AND NOT startsWith(ifNull(address, ''), 'fe80:')
), ends AS (
    SELECT node, boot_id, toUnixTimestamp64Nano(max(ts)) AS last_ns
    FROM events
    GROUP BY node, boot_id
), held AS (
    SELECT node, boot_id, sandbox, address,
        minIf(at_ns, event = 'address.added') AS since_ns,
        if(countIf(event = 'address.removed') > 0, maxIf(at_ns, event = 'address.removed'), any(last_ns)) AS until_ns
    FROM told JOIN ends ON ends.node = told.node AND ends.boot_id = told.boot_id
    GROUP BY node, boot_id, sandbox, address
    HAVING countIf(event = 'address.added') > 0
)
SELECT one.address AS address, one.node AS node, one.sandbox AS sandbox, other.node AS other_node,
    other.sandbox AS other_sandbox, greatest(one.since_ns, other.since_ns) AS since_ns
FROM held AS one JOIN held AS other ON other.address = one.address
WHERE one.node < other.node AND one.since_ns < other.until_ns AND other.since_ns < one.until_ns
ORDER BY since_ns, address, node, other_node;
