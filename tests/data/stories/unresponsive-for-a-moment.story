# The runtime answers nothing for 25 s, as while its disk is busy.
0s    runtime starts
0s    kubelet starts
1s    runtime is followed
5s    sandbox a of web-0 on podnet 10.88.0.2
6s    container main in a starts
200s  runtime hangs
210s  pod web-1
225s  runtime goes on
226s  sandbox b of web-1 on podnet 10.88.0.3
227s  container main in b starts
9m    end
expect nothing
