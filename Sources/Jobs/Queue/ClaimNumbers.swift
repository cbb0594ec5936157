/// Creates the numbers of claims. The upper 32 bits are the instance number, which the store syncs to disk
/// before the instance claims a job. A claim that a power cut undid therefore never shares its number with a
/// later one. No version of a job is shown twice (``Job/start(at:by:)``).
package enum ClaimNumbers {
  /// Returns the number of the instance's next claim after `count` others.
  package static func number(_ count: Int64, of instance: Instance) -> Int64 {
    instance.number << 32 | count
  }

  /// Returns the instance that made the claim.
  package static func instance(of claim: Int64) -> Instance { Instance(number: claim >> 32) }
}
