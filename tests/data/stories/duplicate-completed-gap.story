# Records were lost, and whether the second sandbox ran anything meanwhile no listing can show.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-0 on podnet 10.88.0.2
2s    container main in a starts
5s    container main in a exits 0
6s    stop a
7s    sandbox b of job-0 on podnet 10.88.0.3
8s    lose 1
9m    end
expect blind_spot
