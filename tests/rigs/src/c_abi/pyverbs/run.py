"""Runs rdma-core's test suite as it is, and prints a line for each test: RESULT, its id, how it ended, why.

The suite lets the two ends of a connection run in processes that it forks, on one device with one address. A device of
this library belongs to one process, so each end gets a model of its own here: the processes are started anew, with a unit
each, on the rig's switch. Their first end listens on PASSIVE's address; the other one connects from ACTIVE's.
"""

import enum
import multiprocessing as mp
import os
import random
import sys
import unittest

PASSIVE, ACTIVE = 2, 3


def address(unit):
    """The address that the model with this unit has."""
    return f'10.0.0.{unit}'


def use_own_address():
    """Lets this process bind to its own address where the suite names the other end's."""
    import pyverbs.cmid as cmid
    own = address(os.environ['BAREVERBS_UNIT'])

    class AddrInfo(cmid.AddrInfo):
        def __init__(self, src=None, **rest):
            super().__init__(src=own if src == address(PASSIVE) else src, **rest)

    for name, module in sys.modules.items():
        if name.startswith('tests.') and hasattr(module, 'AddrInfo'):
            module.AddrInfo = AddrInfo


# The suite's modules import each other from its folder, and from the folder above it.
sys.path[1:1] = [os.environ['SUITE'], os.path.dirname(os.environ['SUITE'])]
from args_parser import parser  # noqa: E402
parser.parse_args()
import tests  # noqa: E402

if os.environ['BAREVERBS_UNIT'] == str(ACTIVE):
    use_own_address()


class OneEnd(mp.get_context('spawn').Process):
    """A process with a device of its own."""

    def start(self):
        # Numbers, which the suite names by enumerations that cannot be sent.
        self._kwargs = {name: int(value) if isinstance(value, enum.Enum) else value
                        for name, value in self._kwargs.items()}
        before = os.environ['BAREVERBS_UNIT']
        os.environ['BAREVERBS_UNIT'] = str(PASSIVE if self._kwargs['passive'] else ACTIVE)
        super().start()
        os.environ['BAREVERBS_UNIT'] = before


def get_context(_method):
    """A context whose processes inherit nothing but what they are given."""
    context = mp.get_context('spawn')
    context.Process = OneEnd
    return context


def state(test):
    """What a test takes along into another process: not the streams that results are written to."""
    return {name: value for name, value in vars(test).items() if name not in ('_outcome', '_cleanups')}


def restored(test, values):
    vars(test).update(values, _outcome=None, _cleanups=[])


unittest.TestCase.__getstate__ = state
unittest.TestCase.__setstate__ = restored


class Result(unittest.TextTestResult):
    """Prints how each test ended. Values that tests choose by chance depend on their names alone."""

    def startTest(self, test):
        super().startTest(test)
        random.seed(test.id())

    def say(self, test, how, why=''):
        name = test.id().removeprefix('tests.')
        why = ' '.join(str(why).split())
        print(f'RESULT\t{name}\t{how}\t{why}', flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.say(test, 'passed')

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say(test, 'skipped', reason)

    def addError(self, test, error):
        super().addError(test, error)
        self.say(test, 'failed', error[1])

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.say(test, 'failed', error[1])


if __name__ == '__main__':
    import tests.base
    tests.base.mp = type('mp', (), {'get_context': staticmethod(get_context)})
    unittest.main(module=tests, testRunner=unittest.TextTestRunner(resultclass=Result))
