# A runtime's restart replaces the sandboxes of many pods: one finding with a count.
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
41s   stop e
42s   stop f
50s   remove a
50s   remove b
50s   remove c
50s   remove d
50s   remove e
50s   remove f
9m    end
expect confirmed duplicate_sandbox/after_completion x3 since 5s
