# The runtime stops the needless sandbox in order, while another pod loses its pause and its address: all at the same
# time, on the same network, and two things.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-1 on keynet 10.99.0.2
1s    sandbox c of web-0 on keynet 10.99.0.9
2s    container main in a starts
2s    container main in c starts
3s    container main in a exits 0
4s    stop a
5s    sandbox b of job-1 on keynet 10.99.0.3
7s    kill pause of c by stranger
7s    netns of c lost
8s    stop b
8s    pod job-1 goes
9s    stop c
10s   remove a
10s   remove b
10s   remove c
9m    end
expect confirmed duplicate_sandbox/after_completion job-1 a b since 5s
expect confirmed teardown_out_of_order/pause_killed web-0 c since 7s
expect confirmed leaked_address/del_blind 10.99.0.9 web-0 c since 10s
expect incident teardown_out_of_order .leaked_address
