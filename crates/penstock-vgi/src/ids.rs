/// Return 16 hex digits for a request number. Different numbers with the same seed give different
/// IDs.
pub(crate) fn id(seed: u64, number: u64) -> String {
    let mut mixed = seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    format!("{:016x}", mixed ^ (mixed >> 31))
}
