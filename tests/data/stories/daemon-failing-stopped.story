# Somebody stops the runtime again and again, as an upgrade does.
0s    kubelet starts
20s   runtime starts
21s   runtime is stopped
26s   runtime starts
27s   runtime is stopped
32s   runtime starts
33s   runtime is stopped
40s   runtime starts
41s   runtime is stopped
50s   runtime starts
9m    end
expect nothing
