//! A checked cursor over stored bytes; the reading half of `codec` and `snapshot`.

use super::error::{JournalError, Wrong};
use super::sku::OpsStep;
use crate::ask::{Mode, ReservationState};
use crate::order::contract::Money;
use weir_proto::ids::{ActivityId, SkuId, SkuKey};
use weir_proto::text::Text;

/// A cursor over bytes of ours; every read is checked.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub fn offset(&self) -> usize {
        self.at
    }

    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    pub fn wrong(&self, wrong: Wrong) -> JournalError {
        JournalError {
            offset: self.at,
            wrong,
        }
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8], JournalError> {
        let Some(taken) = self.rest().get(..len) else {
            return Err(self.wrong(Wrong::Short));
        };
        self.at += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], JournalError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub fn u8(&mut self) -> Result<u8, JournalError> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, JournalError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, JournalError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, JournalError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn flag(&mut self) -> Result<bool, JournalError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.wrong(Wrong::Value("flag", u64::from(other)))),
        }
    }

    pub fn sku(&mut self) -> Result<SkuKey, JournalError> {
        Ok(SkuKey {
            activity: ActivityId(self.u64()?),
            sku: SkuId(self.u64()?),
        })
    }

    pub fn text<const N: usize>(&mut self) -> Result<Text<N>, JournalError> {
        let len = usize::from(self.u8()?);
        let bytes = self.take(len)?;
        Text::new(bytes).ok_or_else(|| self.wrong(Wrong::Value("text length or byte", len as u64)))
    }

    pub fn money(&mut self) -> Result<Money, JournalError> {
        Ok(Money {
            minor: self.u64()?,
            currency: self.array()?,
        })
    }

    pub fn mode(&mut self) -> Result<Mode, JournalError> {
        Ok(match self.u8()? {
            1 => Mode::Normal,
            2 => Mode::Degraded,
            3 => Mode::QueueOnly,
            4 => Mode::Closed,
            other => return Err(self.wrong(Wrong::Value("mode", u64::from(other)))),
        })
    }

    pub fn state(&mut self) -> Result<ReservationState, JournalError> {
        Ok(match self.u8()? {
            1 => ReservationState::Reserved,
            2 => ReservationState::Confirmed,
            3 => ReservationState::Settled,
            4 => ReservationState::Closed,
            5 => ReservationState::Failed,
            6 => ReservationState::PaidLate,
            other => return Err(self.wrong(Wrong::Value("state", u64::from(other)))),
        })
    }

    pub fn step(&mut self) -> Result<OpsStep, JournalError> {
        Ok(match self.u8()? {
            1 => OpsStep::Open {
                stock: self.u64()?,
                quantity_max: self.u32()?,
                once_per_activity: self.flag()?,
            },
            2 => OpsStep::Close,
            3 => OpsStep::SetMode(self.mode()?),
            4 => OpsStep::Restock(self.u64()?),
            other => return Err(self.wrong(Wrong::Value("operator's step", u64::from(other)))),
        })
    }
}
