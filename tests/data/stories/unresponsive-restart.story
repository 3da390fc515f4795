# A restart of the runtime takes 7 s, and the new process answers nothing for a minute: it reads what it had before.
0s    runtime starts
0s    kubelet starts
1s    runtime is followed
5s    sandbox a of web-0 on podnet 10.88.0.2
6s    container main in a starts
200s  runtime dies
206s  runtime hangs
207s  runtime starts
270s  runtime goes on
9m    end
expect nothing
