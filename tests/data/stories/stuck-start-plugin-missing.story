# The second plugin of the chain has no executable. The runtime gives up after the first, and cannot call its DEL.
0s    runtime starts
0s    kubelet starts
1s    pod web-0
2s    sandbox a of web-0 begins
2s    add a podnet 10.88.0.2 stops
3m    end
expect confirmed stuck_start/network plugin_not_called portmap web-0 a since 2s
