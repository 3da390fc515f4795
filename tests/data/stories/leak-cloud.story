# Nobody can read the store: what a blind DEL left is unverified, not leaked.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on cloudnet 10.77.0.2
9s    netns of a lost
10s   stop a
11s   remove a
9m    end
expect confirmed teardown_out_of_order/netns_gone web-0 a
expect unverified_release cloud-cni
expect incident teardown_out_of_order .unverified_release
