/// Numbers of claims. Each begins with its instance's, which the store has on its disk before the instance claims anything: a
/// claim that a crash or a power cut undid is taken for no later one, and no version of its job is shown twice
/// (``Job/start(at:by:)``).
package enum ClaimNumbers {
  /// The instance's claim after so many others.
  package static func number(_ count: Int64, of instance: Instance) -> Int64 {
    instance.number << 32 | count
  }

  /// Who made the claim.
  package static func instance(of claim: Int64) -> Instance { Instance(number: claim >> 32) }
}
