-- Which address did sandboxes of two nodes have at once, and since when (since_ns, since the epoch)? A sandbox has an address
-- until it is removed, or until the last event of its boot. Only interfaces count that an ADD has set up: others, as a docker0 in a
-- pod, may have the same address everywhere.
WITH told AS (
    SELECT DISTINCT node, boot_id, boot_ns, seq, event, toUnixTimestamp64Nano(ts) AS at_ns, sandbox, ifname, address
    FROM events
    WHERE event IN ('address.added', 'address.removed') AND sandbox IS NOT NULL
        AND ifname <> 'lo' AND NOT startsWith(ifNull(address, ''), 'fe80:')
        AND (node, boot_id, ifNull(sandbox, ''), ifNull(ifname, '')) IN (
            SELECT node, boot_id, ifNull(sandbox, ''), ifNull(ifname, '')
            FROM events
            WHERE event = 'cni.finished' AND command = 'ADD'
        )
), ends AS (
    SELECT node, boot_id, toUnixTimestamp64Nano(max(ts)) AS last_ns
    FROM events
    GROUP BY node, boot_id
), held AS (
    SELECT node, boot_id, sandbox, address,
        minIf(at_ns, event = 'address.added') AS since_ns,
        maxIf(at_ns, event = 'address.removed') AS removed_ns,
        if(removed_ns > maxIf(at_ns, event = 'address.added'), removed_ns, any(last_ns)) AS until_ns
    FROM told JOIN ends ON ends.node = told.node AND ends.boot_id = told.boot_id
    GROUP BY node, boot_id, sandbox, address
    HAVING countIf(event = 'address.added') > 0
), many AS (
    SELECT address, groupArray((node, sandbox, since_ns, until_ns)) AS holders
    FROM held
    GROUP BY address
    HAVING uniqExact(node) > 1
), ones AS (
    SELECT address, holders, holder AS one FROM many ARRAY JOIN holders AS holder
)
SELECT address, one.1 AS node, one.2 AS sandbox, other.1 AS other_node, other.2 AS other_sandbox,
    greatest(one.3, other.3) AS since_ns
FROM ones ARRAY JOIN holders AS other
WHERE one.1 < other.1 AND one.3 < other.4 AND other.3 < one.4
ORDER BY since_ns, address, node, other_node;
