# Its namespace goes under a sandbox that nobody stops.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
9s    netns of a lost
9m    end
expect confirmed teardown_out_of_order/netns_gone web-0 a since 9s
