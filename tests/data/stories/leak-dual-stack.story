# Both addresses of a dual-stack pod leak, one finding each.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on keynet 10.99.0.2,fd00:99::2
9s    kill pause of a by stranger
9s    netns of a lost
10s   stop a
11s   remove a
9m    end
expect confirmed teardown_out_of_order/pause_killed chaos web-0 a
expect confirmed leaked_address/del_blind 10.99.0.2 web-0 a
expect confirmed leaked_address/del_blind fd00:99::2 web-0 a
expect incident teardown_out_of_order .leaked_address .leaked_address
