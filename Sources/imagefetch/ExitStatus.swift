/// The exit status of the command.
enum ExitStatus: Int32 {
  case fine = 0
  /// A mistake in the configuration, or in a file that it names.
  case operatorMistake = 1
  /// An invalid command line.
  case usageError = 2
  /// `get` finished its list, but not every image could be fetched.
  case imagesMissing = 3
  /// `migrate --check` found tables that are not up to date.
  case migrationPending = 4
  /// A fault of the program, or a store that can't be used; `EX_SOFTWARE` of sysexits.h.
  case internalFault = 70
  /// Ended by a signal: 128 plus its number, as shells do.
  case hangup = 129
  case interrupt = 130
  case brokenPipe = 141
  case termination = 143
}

/// An invalid command line that is detected only while the command runs.
struct UsageMistake: Error {
  let line: String
}

/// The command has finished and reported its result; only the status is left.
struct CommandEnded: Error {
  let status: ExitStatus
}

/// Mistakes that the operator must correct, one line each.
struct OperatorMistakes: Error {
  let lines: [String]
}

/// A store that can't be used. After it is fixed, the command can be started again.
struct UnusableStore: Error {
  let line: String
}

/// A fault of the program.
struct InternalFault: Error {
  let description: String
}
