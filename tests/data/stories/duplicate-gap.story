# Records were lost while both were there: nothing is said.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
9s    sandbox b of web-0 on podnet 10.88.0.3
10s   lose 1
9m    end
expect blind_spot
