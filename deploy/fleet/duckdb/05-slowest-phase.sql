-- Which phase takes longest in how many of a pool's starts (`--boot-label pool=…`), and how long do these take there in all?
SELECT coalesce(labels['pool'], '') AS pool, slowest_phase, slowest_plugin, count(*) AS starts,
    sum(slowest_ns)::BIGINT AS slowest_ns
FROM starts
WHERE comparable
GROUP BY ALL
ORDER BY pool, starts DESC, slowest_phase, slowest_plugin;
