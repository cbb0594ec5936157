/// What the command leaves its caller.
enum ExitStatus: Int32 {
  case fine = 0
  /// A mistake in the configuration, or in what it names.
  case operatorMistake = 1
  /// Not a command line of ours.
  case usageError = 2
  /// `get` was through with its list, and had not every image.
  case imagesMissing = 3
  /// `migrate --check` found that tables are to be brought up to date.
  case migrationPending = 4
  /// Ours to mend, or a store can't be used as it is now; `EX_SOFTWARE` of sysexits.h.
  case internalFault = 70
  /// By signal, as shells number them: 128 and the signal.
  case hangup = 129
  case interrupt = 130
  case brokenPipe = 141
  case termination = 143
}

/// Not a command line of ours, for a reason that shows only while it is carried out.
struct UsageMistake: Error {
  let line: String
}

/// The command did what it could, and has told of it.
struct Ended: Error {
  let status: ExitStatus
}

/// What the operator has to mend: one line each.
struct OperatorMistakes: Error {
  let lines: [String]
}

/// What may be mended elsewhere, and then goes by another start.
struct UnusableStore: Error {
  let line: String
}

/// What we have to mend.
struct InternalFault: Error {
  let description: String
}
