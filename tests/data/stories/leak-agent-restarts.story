# The agent restarts between the last DEL and the verdict, and loses nothing.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on keynet 10.99.0.2
9s    kill pause of a by stranger
9s    netns of a lost
10s   stop a
11s   remove a
30s   agent restarts
60s   agent restarts
9m    end
expect confirmed teardown_out_of_order/pause_killed web-0 a
expect confirmed leaked_address/del_blind 10.99.0.2 web-0 a since 11s
expect incident teardown_out_of_order .leaked_address
