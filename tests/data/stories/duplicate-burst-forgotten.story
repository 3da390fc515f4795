# The first of a burst is over and forgotten long before the others: it stays one finding, with its key and its count.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-1 on podnet 10.88.0.2
1s    sandbox b of job-2 on podnet 10.88.0.3
1s    sandbox c of job-3 on podnet 10.88.0.4
2s    container main in a starts
2s    container main in b starts
2s    container main in c starts
3s    container main in a exits 0
3s    container main in b exits 0
3s    container main in c exits 0
4s    stop a
4s    stop b
4s    stop c
5s    sandbox d of job-1 on podnet 10.88.0.5
6s    sandbox e of job-2 on podnet 10.88.0.6
7s    sandbox f of job-3 on podnet 10.88.0.7
40s   stop d
41s   remove a
41s   remove b
41s   remove c
41s   remove d
30m   stop e
30m   remove e
38m   stop f
38m   remove f
39m   end
expect confirmed duplicate_sandbox/after_completion x3 d e f since 5s
