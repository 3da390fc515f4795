# One process kills all of three pods, which get new sandboxes.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
1s    container main in a starts
2s    sandbox b of web-1 on podnet 10.88.0.3
2s    container main in b starts
3s    sandbox c of web-2 on podnet 10.88.0.4
3s    container main in c starts
60s   container main in a is killed by chaos
60s   kill pause of a by stranger
61s   container main in b is killed by chaos
61s   kill pause of b by stranger
62s   container main in c is killed by chaos
62s   kill pause of c by stranger
70s   stop a
71s   sandbox d of web-0 on podnet 10.88.0.5
71s   container main in d starts
72s   remove a
73s   stop b
74s   sandbox e of web-1 on podnet 10.88.0.6
74s   container main in e starts
75s   remove b
76s   stop c
77s   sandbox f of web-2 on podnet 10.88.0.7
77s   container main in f starts
78s   remove c
9m    end
expect confirmed restarted_in_bulk chaos 3 of 3 a b c since 60s
expect confirmed teardown_out_of_order/pause_killed a
expect confirmed teardown_out_of_order/pause_killed b
expect confirmed teardown_out_of_order/pause_killed c
expect incident restarted_in_bulk .teardown_out_of_order .teardown_out_of_order .teardown_out_of_order
