"use strict";
fetch("v1/doctor")
  .then((answer) => answer.json())
  .then((doctor) => {
    document.getElementById("node").textContent = doctor.node ?? doctor.error;
  });
