# The node starts, and the runtime takes 40 s to come up. The kubelet fails until then.
0s    kubelet starts
2s    kubelet fails 1
12s   kubelet starts
14s   kubelet fails 1
24s   kubelet starts
26s   kubelet fails 1
36s   kubelet starts
38s   kubelet fails 1
40s   runtime starts
48s   kubelet starts
9m    end
expect nothing
