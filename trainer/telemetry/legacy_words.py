"""Texts of v0.10 for which tools search: source positions in log lines, and the mark of a complete model."""

# the source file and line of v0.10 for each log line that tools and users read
AT = {
    "commandline": "Util.cpp:166",
    "seed": "Util.cpp:115",
    "mode": "Trainer.cpp:165",
    "old updater": "TrainerInternal.cpp:239",
    "testing": "Trainer.cpp:141",
    "testing mode": "Trainer.cpp:148",
    "test_period": "Trainer.cpp:618",
    "test_all_data": "Trainer.cpp:622",
    "provider": "PyDataProvider2.cpp:243",
    "init": "GradientMachine.cpp:86",
    "init done": "GradientMachine.cpp:93",
    "load": "GradientMachine.cpp:75",
    "save": "GradientMachine.cpp:64",
    "missing": "Parameter.cpp:377",
    "missing strategy": "Parameter.cpp:387",
    "compact": "Parameter.cpp:317",
    "layer": "Layer.cpp:322",
    "stats": "TrainerInternal.cpp:206",
    "batch": "TrainerInternal.cpp:165",
    "pass": "TrainerInternal.cpp:181",
    "test": "Tester.cpp:115",
    "test batch": "Tester.cpp:125",
    "test pass": "Tester.cpp:245",
    "delete": "ParamUtil.cpp:101",
}

# the content of a pass directory's file `done`
DONE_TEXT = (
    "paddle version: 0.10.0\n\twithGpu: false\n\twithAvx: true\n\twithPyDataProvider: true\n\twithTimer: false\n"
    "\twithFpga: false\n\treal byte size: 4\n\n"
)
