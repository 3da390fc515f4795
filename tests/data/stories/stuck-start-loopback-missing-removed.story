# The same, and the runtime removes the namespaces of the sandboxes that it gives up.
0s    runtime starts
0s    kubelet starts
1s    pod web-0
2s    sandbox a of web-0 begins
2s    add a podnet 10.88.0.2
2s    record a
2s    netns of a lost
20s   sandbox b of web-0 begins
20s   add b podnet 10.88.0.3
20s   record b
20s   netns of b lost
5m    end
expect confirmed stuck_start/sandbox plugin_not_called loopback 10.88.0.2 10.88.0.3 web-0 a b since 2s
