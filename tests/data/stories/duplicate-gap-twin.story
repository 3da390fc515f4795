# Records were lost while both were there, and one ended before a listing could show it: nothing is said.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
9s    sandbox b of web-0 on podnet 10.88.0.3
10s   lose 1
28s   stop a
29s   remove a
9m    end
expect blind_spot
