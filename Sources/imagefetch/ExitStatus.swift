/// What the command leaves its caller.
enum ExitStatus: Int32 {
  case fine = 0
  /// A mistake in the configuration, or in what it names.
  case operatorMistake = 1
  /// Not a command line of ours.
  case usageError = 2
  /// Ours to mend; `EX_SOFTWARE` of sysexits.h.
  case internalFault = 70
}

/// What the operator has to mend: one line each.
struct OperatorMistakes: Error {
  let lines: [String]
}

/// What we have to mend.
struct InternalFault: Error {
  let description: String
}
